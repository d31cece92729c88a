"""What `hopnode add` takes and leaves."""

import os
from pathlib import Path

import pytest

from hopnode.node_service.commands.files import looks_binary, select
from hopnode.node_service.commands.terminal.exits import CommandError, ExitCode


def _write(root: Path, files: dict[str, bytes]) -> None:
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)


def test_a_folder_gives_every_text_file_below_it_with_its_relative_path_as_key(tmp_path: Path) -> None:
    _write(tmp_path, {"b.md": b"# B", "a/deep/c.txt": b"c", "a/d.py": b"d = 1"})
    assert [file.key for file in select([tmp_path]).files] == ["b.md", "a/d.py", "a/deep/c.txt"]


def test_a_single_file_is_taken_under_its_name(tmp_path: Path) -> None:
    _write(tmp_path, {"deep/readme.md": b"x"})
    assert [file.key for file in select([tmp_path / "deep" / "readme.md"]).files] == ["readme.md"]


def test_hidden_junk_binary_and_empty_files_of_a_folder_are_left_out_and_counted(tmp_path: Path) -> None:
    _write(
        tmp_path,
        {
            "keep.txt": b"text",
            ".env": b"SECRET=1",
            ".git/config": b"x",
            "node_modules/x/index.js": b"x",
            "__pycache__/a.pyc": b"x",
            "photo.png": bytes(range(256)),
            "__init__.py": b"",
            "cargo.lock": b"x",
        },
    )
    selection = select([tmp_path])
    assert [file.key for file in selection.files] == ["keep.txt"]
    reasons = {skipped.path.name: skipped.reason for skipped in selection.skipped}
    assert reasons == {".env": "hidden", "photo.png": "binary", "__init__.py": "empty", "cargo.lock": "junk"}


def test_a_file_named_by_itself_is_taken_even_when_a_folder_would_leave_it_out(tmp_path: Path) -> None:
    _write(tmp_path, {".notes": b"", "photo.png": b"\x00\x01"})
    assert len(select([tmp_path / ".notes", tmp_path / "photo.png"]).files) == 2


@pytest.mark.parametrize("name", ["report.pdf", "report.docx", "report.xlsx", "report.PPTX"])
def test_documents_in_a_binary_format_that_hopnode_reads_are_kept(tmp_path: Path, name: str) -> None:
    _write(tmp_path, {name: b"PK\x00\x00\x01\x02"})
    assert [file.key for file in select([tmp_path]).files] == [name]


@pytest.mark.parametrize(
    ("head", "binary"),
    [
        (b"plain ascii\n\ttext", False),
        ("naïve café, 東京".encode(), False),
        ("caf\xe9".encode("latin-1"), False),
        ("\ufeffwide".encode("utf-16"), False),
        (b"\x7fELF\x02\x01\x01\x00", True),
        (bytes(range(32)) * 4, True),
    ],
)
def test_text_in_any_encoding_is_told_from_binary_content(head: bytes, binary: bool) -> None:
    assert looks_binary(head) is binary


def test_patterns_to_exclude_apply_to_names_and_to_paths(tmp_path: Path) -> None:
    _write(tmp_path, {"a.log": b"x", "old/b.md": b"x", "c.md": b"x"})
    assert [file.key for file in select([tmp_path], exclude=["*.log", "old/*"]).files] == ["c.md"]


def test_a_link_that_leads_out_of_the_folder_is_not_followed(tmp_path: Path) -> None:
    _write(tmp_path, {"secret.txt": b"x", "docs/a.md": b"x"})
    (tmp_path / "docs" / "link.txt").symlink_to(tmp_path / "secret.txt")
    selection = select([tmp_path / "docs"])
    assert [file.key for file in selection.files] == ["a.md"]
    assert [skipped.reason for skipped in selection.skipped] == ["outside"]


def test_two_files_that_would_share_a_key_are_refused_before_anything_is_sent(tmp_path: Path) -> None:
    _write(tmp_path, {"one/readme.md": b"1", "two/readme.md": b"2"})
    with pytest.raises(CommandError, match=r"readme\.md") as caught:
        select([tmp_path / "one", tmp_path / "two"])
    assert caught.value.exit_code == ExitCode.USAGE


def test_a_prefix_goes_in_front_of_every_key(tmp_path: Path) -> None:
    _write(tmp_path, {"readme.md": b"1"})
    assert [file.key for file in select([tmp_path], prefix="handbook/").files] == ["handbook/readme.md"]


def test_a_path_that_does_not_exist_is_a_usage_error(tmp_path: Path) -> None:
    with pytest.raises(CommandError) as caught:
        select([tmp_path / "nowhere"])
    assert caught.value.exit_code == ExitCode.USAGE


def test_a_json_file_is_not_sent_as_a_json_body(tmp_path: Path) -> None:
    _write(tmp_path, {"data.json": b"{}", "page.html": b"<p>"})
    types = {file.key: file.media_type for file in select([tmp_path]).files}
    assert types == {"data.json": "application/octet-stream", "page.html": "text/html"}


def test_names_that_cannot_be_keys_and_things_that_are_no_files_are_left_out_of_a_folder(tmp_path: Path) -> None:
    _write(tmp_path, {"fine ü.txt": b"x", "two\nlines.txt": b"x"})
    (tmp_path / os.fsdecode(b"bad\xff.txt")).write_bytes(b"x")
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere")
    selection = select([tmp_path])
    assert [file.key for file in selection.files] == ["fine ü.txt"]
    assert sorted(skipped.reason for skipped in selection.skipped) == ["name", "name", "special", "special"]


def test_a_named_file_whose_name_cannot_be_a_key_is_a_usage_error(tmp_path: Path) -> None:
    _write(tmp_path, {"two\nlines.txt": b"x"})
    with pytest.raises(CommandError, match="cannot be a key"):
        select([tmp_path / "two\nlines.txt"])
