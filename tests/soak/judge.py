# SPDX-License-Identifier: Apache-2.0
"""Whether what a daemon holds stays what it is: samples, one after the other, judged.

    find_growth([5452, 5456, ...], share=0.03, least=128)    # None, or in words what grew

The line that fits the second half best (least squares) may end no higher than the first half's mean
by that share of it, or by `least`, whichever is more. A single high sample does not matter so much,
and a leak shows although the second half is flat by itself.
"""

import statistics

FEWEST = 6  # samples


def fit(values):
    """(start, end) of the line through these, equally far apart."""
    middle, mean = (len(values) - 1) / 2, statistics.fmean(values)
    spread = sum((i - middle) ** 2 for i in range(len(values)))
    slope = sum((i - middle) * (value - mean) for i, value in enumerate(values)) / spread
    return mean - slope * middle, mean + slope * middle


def find_growth(samples, *, share, least):
    """What grew, in words; None: nothing did."""
    if len(samples) < FEWEST:
        return f"{len(samples)} samples are too few to judge"
    half = len(samples) // 2
    before, (_, end) = statistics.fmean(samples[:half]), fit(samples[half:])
    bound = before + max(share * before, least)
    if end <= bound:
        return None
    return f"from {before:.0f} to {end:.0f}, more than {bound:.0f}"


def find_difference(samples):
    """The same where nothing at all may differ."""
    if not samples:
        return "no samples"
    return f"from {min(samples)} to {max(samples)}" if min(samples) != max(samples) else None
