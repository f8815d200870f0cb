"""What every command shares: how it ends, progress bars, tables, JSON files. Only commands import it, no library does."""
