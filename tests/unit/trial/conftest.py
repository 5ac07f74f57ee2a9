"""For the tests of searches: at import MLRsearch reads the source of every frame of its caller's stack, ten times over.
A thread's stack is short.
"""

import importlib
import threading

reader = threading.Thread(target=importlib.import_module, args=("MLRsearch",))
reader.start()
reader.join()
