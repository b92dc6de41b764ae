"""Files by name: below the folder, links inside it, and nothing else."""

import base64
import os
import socket
from pathlib import Path

import pytest

from mlxcel.core.errors import StartupError
from mlxcel.media import data_uri
from mlxcel.media.files import open_video, read_file
from mlxcel.media.folders import check_folders
from mlxcel.media.names import check_name
from mlxcel.media.rules import MediaRefused, read_rules

LIMIT = 100


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "media"
    (folder / "in").mkdir(parents=True)
    (folder / "cat.png").write_bytes(b"cat")
    (folder / "in" / "dog.png").write_bytes(b"dog")
    (tmp_path / "secret").write_bytes(b"secret")
    return folder


@pytest.mark.parametrize(
    "rule",
    [
        pytest.param("", id="empty"),
        pytest.param("../secret", id="parent"),
        pytest.param("a..b", id="dots-anywhere"),
        *(
            pytest.param(f"a{char}b", id=f"control-{ord(char)}")
            for char in "\0\x01\n\t\x1f\x7f\x85"
        ),
        *(pytest.param(f"a{char}b", id=f"char-{char}") for char in ':*?"<>|'),
        pytest.param(" a", id="space-first"),
        pytest.param("a ", id="space-last"),
        pytest.param("a.", id="dot-last"),
        pytest.param("a" * 256, id="256-bytes"),
        pytest.param("ü" * 128, id="256-bytes-of-128-characters"),
        *(
            pytest.param(f"a{char}b", id=f"look-alike-{ord(char):x}")
            for char in "\uff0e\u2215\u2216\ufffd\ufeff"
        ),
        *(pytest.param(f"a{text}b", id=text) for text in ("%2e", "%2F", "%5c", "%00", "%2E")),
        pytest.param("a\udc80b", id="surrogate"),
    ],
)
def test_name_that_is_refused(rule: str) -> None:
    with pytest.raises(MediaRefused, match="the name of the media file"):
        check_name(rule)


@pytest.mark.parametrize(
    "name", ["a", "a b.png", "a%20b", "/a/b.png", ".hidden", "a" * 255, "ü" * 127, "100%", "%2"]
)
def test_name_that_is_taken(name: str) -> None:
    check_name(name)


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("file://cat.png", b"cat"),
        ("cat.png", b"cat"),
        ("file:///cat.png", b"cat"),
        ("file:///in/dog.png", b"dog"),
        ("in/dog.png", b"dog"),
        ("file://{root}/cat.png", b"cat"),
        ("{root}/in/dog.png", b"dog"),
    ],
)
def test_file_below_the_folder(root: Path, source: str, found: bytes) -> None:
    assert read_file(root, source.format(root=root), LIMIT) == found


def test_path_is_read_below_the_folder_before_it_is_absolute(root: Path) -> None:
    inside = root / str(root / "cat.png").lstrip("/")
    inside.parent.mkdir(parents=True)
    inside.write_bytes(b"inside")
    assert read_file(root, f"file://{root}/cat.png", LIMIT) == b"inside"


@pytest.mark.parametrize("source", ["file://cat.png", "file:///etc/passwd", "cat.png"])
def test_without_a_folder_there_are_no_files(source: str) -> None:
    with pytest.raises(MediaRefused) as caught:
        read_file(None, source, LIMIT)
    assert caught.value.message == "file:// URLs are not allowed unless --media-path is specified"


@pytest.mark.parametrize(
    ("source", "says"),
    [
        pytest.param("file:///etc/passwd", "outside --media-path", id="absolute"),
        pytest.param("{root}/../secret", "holds '..'", id="parent"),
        pytest.param("gone.png", "does not exist", id="missing"),
        pytest.param("cat.png/x", "does not exist", id="below-a-file"),
        pytest.param("in", "not a regular file", id="folder"),
        pytest.param("/", "not a regular file", id="the-folder-itself"),
        pytest.param("in/", "not a regular file", id="folder-with-slash"),
    ],
)
def test_file_that_is_refused(root: Path, source: str, says: str) -> None:
    with pytest.raises(MediaRefused, match=says):
        read_file(root, source.format(root=root), LIMIT)


def test_link_that_stays_inside_is_followed(root: Path) -> None:
    (root / "link.png").symlink_to("in/dog.png")
    (root / "folder").symlink_to(root / "in")
    assert read_file(root, "link.png", LIMIT) == b"dog"
    assert read_file(root, "folder/dog.png", LIMIT) == b"dog"


def test_folder_may_be_a_link_itself(root: Path, tmp_path: Path) -> None:
    (tmp_path / "alias").symlink_to(root)
    assert read_file(tmp_path / "alias", "cat.png", LIMIT) == b"cat"


@pytest.mark.parametrize("target", ["../secret", "/etc/passwd"])
def test_link_that_leads_outside_is_refused(root: Path, target: str) -> None:
    (root / "link.png").symlink_to(target)
    (root / "up").symlink_to("..")
    for name in ("link.png", "up/secret"):
        with pytest.raises(MediaRefused, match="outside --media-path"):
            read_file(root, name, LIMIT)


def test_link_that_was_put_there_after_the_check_is_not_followed(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (root / "in" / "dog.png").unlink()
    (root / "in" / "dog.png").symlink_to("../../secret")
    (root / "up").symlink_to("..")
    # As if both had been plain when they were looked at.
    monkeypatch.setattr(os.path, "realpath", lambda path: str(path))
    for name in ("in/dog.png", "up/secret"):
        with pytest.raises(MediaRefused, match=r"cannot be opened|does not exist"):
            read_file(root, name, LIMIT)


@pytest.mark.timeout(10)
def test_pipe_and_socket_are_refused_at_once(root: Path) -> None:
    os.mkfifo(root / "pipe")
    with pytest.raises(MediaRefused, match="not a regular file"):
        read_file(root, "pipe", LIMIT)
    with socket.socket(socket.AF_UNIX) as sock:
        sock.bind(str(root / "sock"))
        with pytest.raises(MediaRefused, match="cannot be opened"):
            read_file(root, "sock", LIMIT)


@pytest.mark.parametrize(("size", "fits"), [(LIMIT, True), (LIMIT + 1, False)])
def test_size_of_a_file_is_exact(root: Path, size: int, fits: bool) -> None:
    (root / "big.png").write_bytes(b"x" * size)
    if fits:
        assert len(read_file(root, "big.png", LIMIT)) == size
        return
    with pytest.raises(MediaRefused, match="larger than 100 bytes"):
        read_file(root, "big.png", LIMIT)


def test_no_descriptor_is_left_open(root: Path) -> None:
    (root / "big.png").write_bytes(b"x" * 1000)
    before = len(os.listdir("/dev/fd"))
    for name in ("cat.png", "in", "big.png", "gone/x/y", "in/gone"):
        try:
            read_file(root, name, LIMIT)
        except MediaRefused:
            continue
    assert len(os.listdir("/dev/fd")) == before


@pytest.mark.parametrize(
    ("name", "says"),
    [
        pytest.param("clip.mp4", "", id="video"),
        pytest.param("clip.MKV", "", id="upper-case"),
        pytest.param("clip.txt", "ends in none of", id="suffix"),
        pytest.param("gone.mp4", "does not exist", id="missing"),
        pytest.param("folder.mp4", "not a regular file", id="folder"),
        pytest.param("link.mp4", "outside the folders", id="link-outside"),
    ],
)
def test_video_of_a_folder_of_the_list(tmp_path: Path, name: str, says: str) -> None:
    folder = tmp_path / "videos"
    (folder / "folder.mp4").mkdir(parents=True)
    for plain in ("clip.mp4", "clip.MKV", "clip.txt"):
        (folder / plain).write_bytes(b"film")
    (tmp_path / "out.mp4").write_bytes(b"secret")
    (folder / "link.mp4").symlink_to("../out.mp4")
    source = f"file://{folder}/{name}"
    if says:
        with (
            pytest.raises(MediaRefused, match=says),
            open_video([tmp_path / "other", folder], source),
        ):
            pass
        return
    with open_video([tmp_path / "other", folder], source) as file:
        assert file.read() == b"film"


@pytest.mark.parametrize("folders", [[], ["/nowhere"]], ids=["no-list", "another"])
def test_video_elsewhere_is_refused(tmp_path: Path, folders: list[str]) -> None:
    (tmp_path / "clip.mp4").write_bytes(b"film")
    with (
        pytest.raises(MediaRefused, match="MLXCEL_VIDEO_DIR_ALLOWLIST"),
        open_video(map(Path, folders), str(tmp_path / "clip.mp4")),
    ):
        pass


def folders(root: Path | None = None, *videos: Path) -> list[str]:
    limits = {
        "media_path": None if root is None else str(root),
        "allow_private_media_urls": False,
        "image": {"payload_bytes": 1, "max_images": 1},
        "video": {"dir_allowlist": [str(folder) for folder in videos]},
    }
    return list(check_folders(read_rules(limits, is_offline=False)))


@pytest.mark.parametrize(("mode", "warned"), [(0o755, 0), (0o775, 1), (0o757, 1)])
def test_folder_of_videos_that_others_may_write_to_is_warned_about(
    tmp_path: Path, mode: int, warned: int
) -> None:
    tmp_path.chmod(mode)
    found = folders(None, tmp_path)
    assert len(found) == warned
    assert all(str(tmp_path) in warning for warning in found)


def test_folder_that_is_none_is_named(root: Path) -> None:
    assert folders(root) == []
    (warning,) = folders(root, root / "gone")
    assert "gone of MLXCEL_VIDEO_DIR_ALLOWLIST" in warning
    for path in (root / "gone", root / "cat.png"):
        with pytest.raises(StartupError, match=f"--media-path .*{path.name} is no folder"):
            folders(path)


def uri(data: bytes, kind: str = "image/png") -> str:
    return f"data:{kind};base64,{base64.b64encode(data).decode()}"


@pytest.mark.parametrize("size", range(LIMIT - 3, LIMIT + 1))
def test_data_uri_is_decoded(size: int) -> None:
    assert data_uri.decode(uri(b"x" * size), "image", LIMIT) == b"x" * size


@pytest.mark.parametrize(
    ("text", "says"),
    [
        pytest.param(uri(b"x" * (LIMIT + 1)), "larger than 100 bytes", id="large"),
        pytest.param(uri(b"x", "audio/wav"), "is not data:image/", id="kind"),
        pytest.param("data:image/png,abc", "is not data:image/", id="not-base64"),
        pytest.param("data:image/;base64,YQ==", "is not data:image/", id="no-type"),
        pytest.param("data:;base64,YQ==", "is not data:image/", id="nothing"),
        pytest.param("data:image/png;charset=x;base64,YQ==", "is not data:image/", id="parameter"),
        pytest.param("data:image/png;base64,YQ", "not valid base64", id="no-padding"),
        pytest.param("data:image/png;base64,Y Q==", "not valid base64", id="space"),
        pytest.param("data:image/png;base64,_-==", "not valid base64", id="url-alphabet"),
        pytest.param("data:image/png;base64,ÄÖ==", "not valid base64", id="not-ascii"),
    ],
)
def test_data_uri_that_is_refused(text: str, says: str) -> None:
    with pytest.raises(MediaRefused, match=says):
        data_uri.decode(text, "image", LIMIT)


def test_size_of_a_data_uri_is_judged_before_it_is_decoded() -> None:
    with pytest.raises(MediaRefused, match="larger than"):
        data_uri.decode("data:image/png;base64," + "!" * 1000, "image", LIMIT)
