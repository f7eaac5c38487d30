"""The shared kernel: names, planes, quantities, errors, states, time, and the wire conventions all services keep."""
