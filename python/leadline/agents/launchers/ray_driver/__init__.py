"""A Ray driver as a program of its own: connects to a cluster, places one actor on each of its nodes, and relays the
stdio of the commands that they run, as frames over its own stdin and stdout.

It is a process of its own because a Ray driver takes over the process that it is in: it sets signal handlers, prints,
and ends the process when the cluster's head is lost. It is copied into no host and imports nothing but `ray` and the
standard library (Python 3.11 or newer), so that the Python of a cluster can run it, which has to be the same on all of
a cluster's hosts.

`frames` has the messages, `actor` what runs on a node, `driver` the program, `cluster` what it asks of Ray.
"""
