"""Records what a browser or another HTTP client does, through mitmproxy in a process of its own, as a HAR file.

`proxy` is that process: it writes a journal, an entry per exchange (`har_entry`, `body_decoding`). `session` starts it
beside a command, `trust` has its certificate authority, `journal` and `pages` make a HAR file of the journal.
`leadline record` converts that file as `leadline convert` does.
"""
