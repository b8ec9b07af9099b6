"""What `accerl bench` measures on the machine at hand."""
