"""Finds the kernel that runs the Rust cells, and asks its program for the magics. Starts no kernel."""

import json
import pathlib
import subprocess
import sys
import sysconfig

from jupyter_client.kernelspec import KernelSpec, KernelSpecManager, NoSuchKernel

from .errors import FerrotuneError

KERNEL = "ferrotune"


class KernelSpecs(KernelSpecManager):
    """Jupyter's kernelspecs, except that Ferrotune's is the one of this Python's environment if that has it."""

    def get_kernel_spec(self, kernel_name):
        if kernel_name != KERNEL:
            return super().get_kernel_spec(kernel_name)
        folder = pathlib.Path(sys.prefix, "share/jupyter/kernels", KERNEL)
        program = pathlib.Path(sysconfig.get_path("scripts"), "ferrotune")
        if (folder / "kernel.json").is_file():
            spec = KernelSpec.from_resource_dir(str(folder))
            if program.is_file():
                spec.argv[0] = str(program)
            return spec
        if program.is_file():
            argv = [str(program), "kernel", "--connection-file", "{connection_file}"]
            return KernelSpec(argv=argv, display_name="Rust (Ferrotune)", language="rust", interrupt_mode="message")
        try:
            return super().get_kernel_spec(kernel_name)
        except NoSuchKernel:
            cure = "docs/install.md of Ferrotune says how to install it"
            raise FerrotuneError(f"the kernel `{KERNEL}` is not installed for {sys.executable}; {cure}") from None


def path():
    """The path of Ferrotune's program, which the kernelspec names."""
    spec = KernelSpecs().get_kernel_spec(KERNEL)
    # What Jupyter replaces in a kernelspec, too.
    return spec.argv[0].replace("{resource_dir}", spec.resource_dir)


def magics():
    """Ferrotune's magics: a list of `{"forms": ["%best"], "summary": …, "help": …}`."""
    program = path()
    try:
        ran = subprocess.run([program, "magics"], capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise cannot_run(program, error) from None
    if ran.returncode != 0:
        reason = (ran.stderr.strip().splitlines() or [f"it ended with {ran.returncode}"])[0]
        raise FerrotuneError(f"{program} does not list its magics: {reason}; install the same version as this package")
    return json.loads(ran.stdout)


def cannot_run(program, reason):
    """The error of a program that does not run."""
    return FerrotuneError(f"{program}, which the kernel `{KERNEL}` names, cannot be run: {reason}; install Ferrotune again")
