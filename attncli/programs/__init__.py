"""Attention as its user writes it: a text of formulas, one stage a line.

    temperature = 0.5
    scores: S[b,h,i,j] = sum[d](q[b,h,i,d] * k[b,h,j,d])   # a note
    weights: A[b,h,i,j] = softmax[j](S[b,h,i,j] / temperature where j <= i)
    output: O[b,h,i,e] = sum[j](A[b,h,i,j] * v[b,h,j,e])

text ── statements ── read ── steps ── run ── Trace;   and back: plan ── written ── text

A capability: it stands on the core, which knows nothing of it.
"""
