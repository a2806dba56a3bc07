"""A server of Rust toolchains on 127.0.0.1, made from the installed toolchain: a real rustup installs from it.

It serves what static.rust-lang.org does: `dist/channel-rust-VERSION.toml`, the archives of the components, and `rustup-init`.
"""

import contextlib
import functools
import hashlib
import http.server
import io
import pathlib
import shutil
import subprocess
import tarfile
import threading

MINIMAL = ("rustc", "cargo", "rust-std")
COMPONENTS = (*MINIMAL, "rust-src")
# The archives are as large as their contents: compressing 600 MB takes longer than everything else.
NO_COMPRESSION = 0


def output_of(*command):
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


@functools.cache
def installed():
    """The version, the host and the folder of the installed toolchain."""
    lines = dict(line.split(": ", 1) for line in output_of("rustc", "-vV").splitlines() if ": " in line)
    return lines["release"], lines["host"], pathlib.Path(output_of("rustc", "--print=sysroot"))


def sha256(path):
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def files_of(component):
    """The paths of a component's files, below the toolchain's folder."""
    _, host, sysroot = installed()
    name = component if component == "rust-src" else f"{component}-{host}"
    listed = (sysroot / f"lib/rustlib/manifest-{name}").read_text().splitlines()
    for line in listed:
        kind, path = line.split(":", 1)
        if path.startswith("share/"):
            continue  # documentation
        inside = [sysroot / path] if kind == "file" else sorted((sysroot / path).rglob("*"))
        yield from (str(file.relative_to(sysroot)) for file in inside if file.is_file())


def pack(archive, component, version, contents):
    """Writes a component's archive; `contents` are its files by path, each a path on disk or bytes."""
    _, host, _ = installed()
    root, name = f"{component}-{version}-{host}", f"rust-std-{host}" if component == "rust-std" else component

    def add(tar, path, content, mode=0o644):
        entry = tarfile.TarInfo(f"{root}/{path}")
        entry.size, entry.mode = len(content), mode
        tar.addfile(entry, io.BytesIO(content))

    with tarfile.open(archive, "w:gz", compresslevel=NO_COMPRESSION) as tar:
        parents = {str(parent) for path in contents for parent in pathlib.PurePath(f"{root}/{name}/{path}").parents}
        for parent in sorted(parents - {"."}):
            entry = tarfile.TarInfo(parent)
            entry.type, entry.mode = tarfile.DIRTYPE, 0o755
            tar.addfile(entry)
        add(tar, "rust-installer-version", b"3\n")
        add(tar, "components", f"{name}\n".encode())
        add(tar, f"{name}/manifest.in", "".join(f"file:{path}\n" for path in contents).encode())
        for path, content in contents.items():
            if isinstance(content, bytes):
                add(tar, f"{name}/{path}", content, 0o755)
            else:
                tar.add(content, f"{root}/{name}/{path}")


def target_of(component):
    """The target of a component in a manifest."""
    return '"*"' if component == "rust-src" else installed()[1]


def manifest(version, address, hashes):
    """The channel's manifest, with the archives' hashes by component."""
    _, host, _ = installed()
    lines = ['manifest-version = "2"', 'date = "2026-01-01"']
    for component, hash_ in hashes.items():
        url = f"{address}/dist/{component}.tar.gz"
        lines += [f"[pkg.{component}]", f'version = "{version}"', f"[pkg.{component}.target.{target_of(component)}]"]
        lines += ["available = true", f'url = "{url}"', f'hash = "{hash_}"']
    lines += ["[pkg.rust]", f'version = "{version}"', f"[pkg.rust.target.{host}]", "available = true"]
    lines += [f'url = "{address}/none"', f'hash = "{"0" * 64}"', "components = ["]
    lines += [f'{{ pkg = "{component}", target = "{host}" }},' for component in MINIMAL]
    lines += ["]", 'extensions = [{ pkg = "rust-src", target = "*" }]']
    lines += ["[profiles]", f"minimal = {list(MINIMAL)}".replace("'", '"')]
    return "\n".join(lines) + "\n"


class Dist:
    """A served folder. `requests` are the paths that were asked for; `answers` replaces what is served at a path."""

    def __init__(self, folder, version, contents):
        self.folder, self.version, self.requests, self.answers = folder, version, [], {}
        dist = self
        handler = type("Handler", (_Handler,), {"dist": dist})
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self.address = f"http://127.0.0.1:{self.server.server_port}"
        (folder / "dist").mkdir(parents=True)
        hashes = {}
        for component, files in contents.items():
            archive = folder / f"dist/{component}.tar.gz"
            pack(archive, component, version, files)
            hashes[component] = sha256(archive)
        channel = folder / f"dist/channel-rust-{version}.toml"
        channel.write_text(manifest(version, self.address, hashes))
        write_hash(channel)
        program = folder / f"rustup/dist/{installed()[1]}/rustup-init"
        program.parent.mkdir(parents=True)
        shutil.copyfile(shutil.which("rustup"), program)
        write_hash(program)

    @property
    def environment(self):
        return {"RUSTUP_DIST_SERVER": self.address, "RUSTUP_UPDATE_ROOT": f"{self.address}/rustup"}


def write_hash(path):
    path.with_name(path.name + ".sha256").write_text(f"{sha256(path)}  {path.name}\n")


class _Handler(http.server.SimpleHTTPRequestHandler):
    dist = None

    def __init__(self, *arguments, **options):
        super().__init__(*arguments, directory=self.dist.folder, **options)

    def do_GET(self):
        self.dist.requests.append(self.path)
        answer = self.dist.answers.get(self.path)
        if answer:
            return answer(self)
        with contextlib.suppress(ConnectionError):
            super().do_GET()

    def log_message(self, *arguments):
        pass


@contextlib.contextmanager
def serve(folder, version, contents):
    """Serves a toolchain of this version while the block runs; `contents` are the files of each component."""
    dist = Dist(folder, version, contents)
    thread = threading.Thread(target=dist.server.serve_forever, daemon=True)
    thread.start()
    try:
        yield dist
    finally:
        dist.server.shutdown()
        dist.server.server_close()
        thread.join()


def whole_toolchain():
    """The files of the installed toolchain, by component."""
    sysroot = installed()[2]
    return {component: {path: sysroot / path for path in files_of(component)} for component in COMPONENTS}
