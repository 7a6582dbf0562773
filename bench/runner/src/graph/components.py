"""Prints the number of connected components of a file of edges, and the seconds: `components.py FILE VERTICES`."""

import sys
import time

import numpy
from scipy.sparse import coo_matrix
from scipy.sparse.csgraph import connected_components

edges = numpy.fromfile(sys.argv[1], dtype="<u4").reshape(-1, 2)
vertices = int(sys.argv[2])
start = time.perf_counter()
weights = numpy.ones(len(edges), dtype=numpy.int8)
graph = coo_matrix((weights, (edges[:, 0], edges[:, 1])), shape=(vertices, vertices)).tocsr()
count, labels = connected_components(graph, directed=False)
print(count, time.perf_counter() - start)
