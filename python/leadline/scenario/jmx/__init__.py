"""Reads JMeter's test plans: elements, their scopes, texts with functions, scripts, and the native form of each.

`plan` is the entry. Pure: a file becomes a tree, an included one is asked for by name.
"""
