"""`matrixctl bundle`: what a bug report needs, in one file and without secrets."""
