"""How long a step takes, from operators, dies and the fabric.

Pure: no queue, no request.
"""
