"""`make bench`: which peer is compared with what, on times that are typed here."""

import pandas as pd
import pytest

from helpers import bench, mode, results


def times(**columns):
    return pd.DataFrame({"experiment": "x", "time_us": [4.0, 2.0, 3.0, 1.0, 9.0]} | columns)[["experiment", *columns, "time_us"]]


def test_the_fastest_peer_of_each_case():
    variant = ["softmax", "torch", "yours", "copy", "online_softmax"]
    measured = times(variant=variant, rows=[8] * 4 + [9], cols=[4] * 5)
    (row,) = bench.compared("softmax_versions", measured)  # a copy is no peer, and the case with rows 9 has none
    assert (row["case"], row["ours"], row["fastest peer"], row["peer / ours"]) == ("rows 8, cols 4", "softmax", "torch", 0.5)
    measured["time_us"] = [4.0, 2.0, 1.0, 1.0, 9.0]
    assert bench.compared("softmax_versions", measured)[0]["fastest peer"] == "Liger"
    measured["variant"] = ["copy", "torch", "copy", "copy", "online_softmax"]
    measured["rows"] = 8
    assert bench.compared("softmax_versions", measured)[0]["ours"] == "online_softmax"


@pytest.mark.skipif(mode.is_live(), reason="compares recordings where there is no GPU")
def test_the_recording_is_compared(capsys):
    bench.main()
    said = capsys.readouterr().out
    assert all(name in said for name in bench.OURS) and "recorded · " in said and "NVIDIA H200" in said
    for name, ours in bench.OURS.items():
        assert set(ours) <= set(results.recorded(name)["variant"])
