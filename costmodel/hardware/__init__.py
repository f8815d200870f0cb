"""Chips by their data sheets, this host, clocks, and the ceilings that were measured on this machine."""
