"""A Trace turned into something to look at; prints nothing, reads no file.

    Trace, Showing ─ page.parts ─► Headline, Heading, Matrix, Derivation, Closing, Remark
                                   └─ spelled by table, markdown, …
    Trace, Showing ─ select ─────► a smaller Trace
                                   └─ written by delimited, and by json and npz

    showing      what to show, and how; select
    places       the stages of one level, their heads and batch entries, their mask
    tour         the order in which heads and batch entries are shown
    window       what of a large matrix fits, and the blocks its columns stand in
    piece        the part of a matrix that is shown, as numbers
    grid         the same as text; columns, numbers, heatmap and legend help it
    arithmetic   the equation behind one cell; derivation lays it out
    headline     the words above, prose the words below
    safe         text from strangers

A format is one module: a loop over `page.parts` and one function for each kind of part. A Grid
holds cells with a kind and a shade, so a format chooses its own mark and colours. Every string in
a part has been through `safe`; what is special to a format, it escapes itself.
"""
