# Colab's own image with Ferrotune, for a local or custom runtime: docs/colab.md. The folder that is given to `docker build` has the wheel.
FROM us-docker.pkg.dev/colab-images/public/runtime

# The linker of Rust cells, and what fetches Rust.
RUN apt-get update && apt-get install --yes --no-install-recommends curl gcc libc6-dev && rm -rf /var/lib/apt/lists/*

COPY ferrotune-*.whl /tmp/
RUN python3 -m pip install --no-cache-dir /tmp/ferrotune-*.whl && rm /tmp/ferrotune-*.whl

# Rust for Ferrotune alone, so that the first cell does not wait for it.
RUN ferrotune setup && ferrotune doctor
