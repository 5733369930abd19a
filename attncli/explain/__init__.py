"""The whole way of a sentence, from words to contextual vectors, as one Trace.

    sentence ── tokens ── embeddings ── + positions ── input ── block ── meaning
       sentence.py    vocabulary.py                             way.py   meaning.py

A block is an attention, an encoder, or an encoder and a decoder. Its weights stand beside what was
computed with them (parameters.py), and each stage says in plain words what it does (notes.py).
"""
