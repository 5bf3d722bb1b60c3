"""One task of an epoch: it receives and reads rows, applies operators, sends rows and writes state."""
