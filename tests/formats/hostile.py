"""Labels that act where they are not taken as text: in a terminal, a page, a chart, a spreadsheet.

Those that are not plainly visible come first, then those of Markdown, LaTeX, Mermaid, spreadsheets.
"""

LABELS = {
    "colour": "\x1b[31mred\x1b[0m", "title": "\x1b]0;title\x07",
    "hyperlink": "\x1b]8;;http://x.y\x1b\\link\x1b]8;;\x1b\\", "clear": "\x1b[2J\x1b[H",
    "cursor": "\x1b[5A\x1b[9C", "C1": "\x9b31m\x9d0;t\x9c", "device": "\x1bP1$r\x1b\\\x1b_x\x1b\\",
    "controls": "a\b\b\rb\x07\x0e\x7f", "lines": "one\ntwo\x0b\x0c\x85\u2028\u2029",
    "tab": "\t=1+1", "override": "\u202egnp.exe", "isolates": "\u2067a\u2069\u200f\u061c",
    "zero width": "a\u200bb\u200d\u2060c\ufeff", "tags": "\U000e0041\U000e007f",
    "soft hyphen": "a\u00adb", "surrogate": "\ud83d", "clipboard": "\x1b]52;c;eA==\x07",
    "marks": "\u202a\u202b\u202c\u202d\u2066\u2068\u200e", "blink": "\x1b[5mb", "nothing": "a\0b",
    "forged": "a\nFORGED", "overwritten": "wrong\rFORGED", "style": "[red]x[/red]",

    "emphasis": "**b** _i_ ~~s~~", "link": "[x](http://y.z)", "image": "![x](y.png)",
    "reference": "[x][y] [^1]", "address": "<http://y.z>", "bare address": "http://y.z/ www.y.z",
    "mail": "a@b.cd", "code": "`x` ``y", "column": "a | b \\| c", "tag": "<b>x</b>",
    "script": "<script>x</script>", "comment": "<!-- x -->", "entity": "&lt;b&gt; &#60;",
    "heading": "# x", "list": "- x", "numbered": "1. x", "quotation": "> x", "rule": "---",
    "fence": "```", "mathematics": "$x$ $$y$$", "backslash": "a\\", "emoji name": ":smile:",

    "input": "\\input{/etc/passwd}", "percent": "50 % of {x}^2_3 ~ #1", "caret": "^^41 \\end{document}",

    "node": '"]; a --> b; c["', "directive": "%%{init: {}}%%", "end": "end",
    "click": 'click n1 "http://x"', "character": "#quot; #35; #x41;", "class": "n1:::x",
    "markdown string": '"`**x**`"', "break": "a<br/>b", "icon": "fa:fa-ban",

    "sum": "=1+1", "plus": "+1+1", "minus": "-1+1", "at": "@SUM(1)", "command": "=cmd|'/c calc'!A0",
    "web": '=HYPERLINK("http://x.y")', "blank": " =1+1", "full width": "＝1+1", "apostrophe": "'=1+1",
    "quoted": '"=1+1', "semicolon": "a;=1+1", "comma": "a,=1+1", "number": "1e5", "date": "1/2",

    "plain": "the", "empty": "", "two": "a b",
}  # fmt: skip

LEFT_SIDES = ["S[i,j]", "S[value]", "cos(i, j, d, b)", "S[i·j,0]"]
BODIES = [
    "q[i,q[9,9]]", "sum[d](q[i,d] where sum[j](q[j,d] where k[9,d] > 0) > 0)", "q[i,0 / 0] / 0",
    "1 if lse[j](1, sink=j) else q[b,h]", "softmax[j](0, sink=sum[d](q[i,d]))", "9e9 ** max(i, j)",
    "sum[d](0 where " + "-" * 300 + "q[i,d])", "q[i,q[j,d] + nosuch]", "sum[j,d,i](k[j])", "x[j]",
]  # fmt: skip
"""Formulas of a file that no array has the places for, or that are no numbers."""
