"""A Trace turned into something to look at; prints nothing, reads no file.

Trace, DisplayOptions ─ page.parts ─► Headline, Heading, Matrix, Closing … ─► a module of formats/
Trace, DisplayOptions ─ select ─────► a smaller Trace ──────────────────────► csv, json, npz …

select       the blocks of a trace, and which of their stages, heads, rows are shown
page         those as parts in reading order; explain and outline are other pages
parts        what a page is made of; Matrix.grid makes text of numbers
words        the arithmetic of a cell (cell.py) from its formula
work         that arithmetic as lines; derivation: all that leads to one weight or cell
closing      sentences on the weights
numbers      digits; text: labels cleaned, shortened, wrapped; scatter: points in a plane
formats/     one row and one module each: a loop over the parts
"""
