"""Known truths: small servers and links whose right figures are known, and the load tools that are run against them.

`http_truths`, `stream_truths` and `datagram_truths` say what is made and what is true of it; `tools` says how each tool
is run; `suite` runs them. `analysis.tool_output` reads what a tool printed, `analysis.truths` compares it.
"""
