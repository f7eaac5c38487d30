"""`matrixctl experiment`: serving experiments in virtual time; they need no running stack."""
