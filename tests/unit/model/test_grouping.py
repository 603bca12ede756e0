from jobmeter.model.grouping import group_pairs


def test_values_are_grouped_by_their_keys_in_the_order_of_the_pairs():
    found = group_pairs(iter([("b", 2), ("a", 3), ("b", 1), ("b", 2)]))
    assert list(found.items()) == [("b", [2, 1, 2]), ("a", [3])]
    assert "c" not in found


def test_no_pairs_have_no_groups():
    assert group_pairs([]) == {}
