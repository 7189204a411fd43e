# SPDX-License-Identifier: Apache-2.0
"""What the soak is judged by, and a short one: after restarts and kills, dead VMMs and metadata that
was left behind, and drives, crustd has as many descriptors and watches as before."""

import pathlib
import random
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "soak"))

from judge import find_difference, find_growth  # noqa: E402
from soak import GROWING, Soak  # noqa: E402

PODS, BATCH_PODS, BATCHES = GROWING + 8, 8, 7


class JudgeTest(unittest.TestCase):
    """Samples of a process of 5,000 kB."""

    def judge(self, values):
        return find_growth(values, share=0.03, least=128)

    def noise(self, count):
        numbers = random.Random(1)
        return [5000 + numbers.randrange(-40, 40) for _ in range(count)]

    def test_noise_is_no_growth(self):
        self.assertIsNone(self.judge(self.noise(30)))

    def test_a_leak_is(self):
        leak = [value + 12 * number for number, value in enumerate(self.noise(30))]
        self.assertIn("more than", self.judge(leak))

    def test_a_step_in_the_second_half_is(self):
        self.assertIn("more than", self.judge([5000] * 20 + [5400] * 10))

    def test_one_high_sample_is_not_a_leak(self):
        self.assertIsNone(self.judge([5000] * 22 + [5300] + [5000] * 7))

    def test_few_samples_allow_no_verdict(self):
        self.assertIn("too few", self.judge([5000] * 3))
        self.assertEqual(find_difference([]), "no samples")

    def test_figures_that_must_not_differ(self):
        self.assertIsNone(find_difference([7, 7]))
        self.assertEqual(find_difference([7, 8]), "from 7 to 8")


class ShortSoakTest(unittest.TestCase):
    def test_no_new_resources_are_held(self):
        with tempfile.TemporaryDirectory(prefix="crust-soak-") as scratch, \
                Soak(scratch, PODS, BATCH_PODS) as soak:
            soak.begin()
            soak.live(BATCHES)
            self.assertGreater(soak.counts["killed"], 0, soak.counts)
            self.assertGreater(soak.counts["left_behind"], 0, soak.counts)
            self.assertGreater(soak.counts["vmm_deaths"], 0, soak.counts)
            if soak.drives:
                self.assertGreater(soak.counts["drives"], 0, soak.counts)
            for name in ("descriptors", "watches", "vmm_descriptors"):
                self.assertIsNone(find_difference([sample[name] for sample in soak.samples]), name)
