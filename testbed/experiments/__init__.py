"""What all experiments share: their command line, rows, checks, files and tables."""
