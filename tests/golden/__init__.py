"""What the study says of known nodes, kept: nothing that it says changes unnoticed."""
