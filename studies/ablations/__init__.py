"""What each part of the Advanced Indicator is worth."""
