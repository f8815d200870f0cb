"""What every command shares: how it ends, progress bars and tables. Only commands and rooms that print import it."""
