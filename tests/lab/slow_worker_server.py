"""An HTTP server for tests with several workers, of which one is slow: `slow_worker_server.py WORKERS DELAY_S`.

Prints its port. Every connection has a thread that reads requests and hands each to the next worker in turn, as a
balancer does; the last worker takes `DELAY_S` for each.
"""

from __future__ import annotations

import itertools
import queue
import socket
import sys
import threading
import time

ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nright"
Job = threading.Event


def work(jobs: queue.SimpleQueue[Job], delay_s: float) -> None:
    """Take one job after the other."""
    while True:
        done = jobs.get()
        if delay_s:
            time.sleep(delay_s)
        done.set()


def connection(peer: socket.socket, turns: itertools.cycle[queue.SimpleQueue[Job]], lock: threading.Lock) -> None:
    """Answer requests without a body until the client hangs up."""
    peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    left = b""
    while True:
        while b"\r\n\r\n" not in left:
            read = peer.recv(65536)
            if not read:
                return
            left += read
        left = left.partition(b"\r\n\r\n")[2]
        done = Job()
        with lock:
            jobs = next(turns)
        jobs.put(done)
        done.wait()
        peer.sendall(ANSWER)


def main() -> None:
    """Serve until killed."""
    workers, delay_s = int(sys.argv[1]), float(sys.argv[2])
    queues = [queue.SimpleQueue[Job]() for _ in range(workers)]
    for number, jobs in enumerate(queues):
        slow = delay_s if number == workers - 1 else 0.0
        threading.Thread(target=work, args=(jobs, slow), daemon=True).start()
    turns, lock = itertools.cycle(queues), threading.Lock()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        print(listener.getsockname()[1], flush=True)
        while True:
            peer, _ = listener.accept()
            threading.Thread(target=connection, args=(peer, turns, lock), daemon=True).start()


if __name__ == "__main__":
    main()
