"""Collections are put off, skip what was set aside, and happen once where several were asked for."""

import gc
import weakref

import pytest

from evaluator.garbage import collected_once, not_collected, set_aside, take_back


class Cycle:
    def __init__(self):
        self.itself = self


@pytest.fixture(autouse=True)
def everything_is_collected_again():
    yield
    gc.unfreeze()
    gc.enable()
    gc.collect()


def fail() -> None:
    raise ValueError("within")


def dropped() -> weakref.ref[Cycle]:
    return weakref.ref(Cycle())


@pytest.mark.parametrize("enabled", [True, False])
def test_collection_is_off_meanwhile_and_then_as_it_was(enabled):
    (gc.enable if enabled else gc.disable)()
    with not_collected():
        assert not gc.isenabled()
    assert gc.isenabled() == enabled
    with pytest.raises(ValueError, match="within"), not_collected():
        fail()
    assert gc.isenabled() == enabled


def test_what_was_set_aside_is_collected_once_it_is_taken_back():
    garbage = dropped()
    set_aside()
    later = dropped()
    gc.collect()
    assert garbage() is not None
    assert later() is None
    take_back()
    gc.collect()
    assert garbage() is None


def test_collections_within_the_context_are_one_at_its_end():
    garbage, collect = dropped(), gc.collect
    before = gc.get_stats()[2]["collections"]
    with collected_once():
        gc.collect()
        gc.collect(1)
        assert garbage() is not None
    assert garbage() is None
    assert gc.get_stats()[2]["collections"] == before + 1
    with pytest.raises(ValueError, match="within"), collected_once():
        fail()
    assert gc.collect is collect
