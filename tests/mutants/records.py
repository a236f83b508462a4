"""Reading what anybody may have written: the files of a ledger."""

from __future__ import annotations

from mutants.mutant import Mutant

RECORDS = (
    Mutant(
        "a newer format read",
        "store/records.py",
        "if newer is not None and int(newer[1]) > NEWEST_FORMAT:",
        "if newer is None and NEWEST_FORMAT < 0:",
        "S9",
        "tests/store/test_git_hostile.py::test_a_newer_format_may_use_what_this_one_refuses",
    ),
    Mutant(
        "records read however large",
        "store/records.py",
        "MAX_RECORD = 64 * 1024",
        "MAX_RECORD = 64 * 1024**3",
        "S9",
        "tests/store/test_git_hostile.py::test_a_bad_record_takes_only_its_own_resource[1 MB]",
    ),
    Mutant(
        "aliases followed",
        "git/yaml_nodes.py",
        "    if node.shape is Shape.ALIAS:\n",
        "    if node.shape is None:\n",
        "S9",
        "tests/git/test_plain_yaml.py::test_what_a_loader_would_fall_for_is_refused",
    ),
    Mutant(
        "anchors and tags accepted",
        "git/yaml_nodes.py",
        "    if node.anchor or node.tag:\n",
        "    if node.anchor and node.tag:\n",
        "S9",
        "tests/git/test_plain_yaml.py::test_what_a_loader_would_fall_for_is_refused",
    ),
    Mutant(
        "a key that stands twice accepted",
        "git/yaml_nodes.py",
        "        if key.text in found:\n",
        "        if key.text in ():\n",
        "S9",
        "tests/git/test_plain_yaml.py::test_what_a_loader_would_fall_for_is_refused",
    ),
    Mutant(
        "records nested without end",
        "git/yaml_nodes.py",
        "        if depth > max_depth:\n",
        "        if depth > 10**9:\n",
        "S9",
        "tests/git/test_plain_yaml.py::test_what_a_loader_would_fall_for_is_refused",
    ),
    Mutant(
        "a record under another's name believed",
        "store/tree.py",
        "if lease_file(found) != file:",
        "if not lease_file(found):",
        "S9",
        "tests/store/test_git_hostile.py::test_a_record_under_the_name_of_another",
    ),
    Mutant(
        "a damaged record that covers paths passed over",
        "store/tree.py",
        "yield self._lease(damaged_file(told))",
        "continue",
        "S2",
        "tests/store/test_git_hostile.py::test_a_bad_record_of_paths_takes_"
        "path_claims_only[deep flow]",
    ),
    Mutant(
        "a link read as a record",
        "store/tree.py",
        "if entry.mode not in (FILE, EXECUTABLE):",
        "if entry.mode == FOLDER:",
        "S9",
        "tests/store/test_git_hostile.py::test_a_record_that_is_no_regular_file",
    ),
    Mutant(
        "two records of one resource believed",
        "store/tree.py",
        "if len(keys) != len(found):",
        "if len(keys) > len(found):",
        "S9",
        "tests/store/test_git_hostile.py::test_two_records_of_one_resource",
    ),
    Mutant(
        "a spoilt object believed",
        "store/private_store.py",
        " or object_id(kind, data, len(id) // 2)[0] != id",
        "",
        "S10",
        "tests/store/test_loose_objects.py::test_what_is_spoilt_is_absent",
    ),
    Mutant(
        "an answer to another question believed",
        "git/objects.py",
        "self._proven and object_id(kind, data, len(id) // 2)[0] != id",
        "False",
        "S2",
        "tests/git/test_objects.py::test_an_answer_to_another_question_is_believed_by_nobody",
    ),
)
