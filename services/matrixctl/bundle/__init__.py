"""`matrixctl bundle`: what a report of a fault needs, in one file and without secrets."""
