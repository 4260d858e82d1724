"""From the bytes of a log to facts: reading, cleaning, matching, collecting."""
