"""`matrixctl experiment`: trials of serving in virtual time; nothing has to run for them."""
