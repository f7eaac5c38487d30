"""What a fault scenario does to processes and their databases, where `matrixctl up` keeps the stack."""
