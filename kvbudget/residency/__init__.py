"""Host tiers: windows, links, hit curves and trace-driven simulation of every write policy."""
