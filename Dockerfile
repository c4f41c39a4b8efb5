# The image of evalcell itself. docs/guides/docker.md says how to build it and how to run it.
#
# BASE is an image with Python 3.11 or newer, its venv module, glibc and a shell.
ARG BASE=python:3.12-slim

FROM ${BASE} AS build
# Where `make wheels` has collected wheels, packages come from there alone and the build needs no network. There is no
# argument for the address of an index: the history of this stage would keep it, with whatever password is in it.
COPY requirements wheel[s] /wheels/
RUN if ls /wheels/*.whl > /dev/null 2>&1; then export PIP_NO_INDEX=1 PIP_FIND_LINKS=/wheels; fi \
 && export PIP_NO_CACHE_DIR=1 PIP_NO_COMPILE=1 PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_REQUIRE_HASHES=1 PIP_ONLY_BINARY=:all: \
 && python3 -m venv /build \
 && python3 -m venv --without-pip /opt/evalcell \
 && /build/bin/pip install -r /wheels/build.txt \
 && /build/bin/pip --python /opt/evalcell/bin/python install -r /wheels/image.txt
WORKDIR /src
COPY . .
RUN /build/bin/python -m build --wheel --no-isolation --outdir /dist \
 && /build/bin/pip --python /opt/evalcell/bin/python install --no-cache-dir --no-compile --no-index --no-deps /dist/*.whl
# Compiled here, since nobody may write there later: the guest for any processor, Python's files for good.
RUN /opt/evalcell/bin/python -P -m evalcell_sandboxes.wasm.module \
 && /opt/evalcell/bin/python -m compileall -q -j 0 --invalidation-mode unchecked-hash /opt/evalcell/lib

FROM ${BASE}
# The user's number is fixed, so that volumes keep their owner. Any other may be named with --user: everybody may write to
# the home directory, as to /tmp, and nobody to anything else. Many bases come with a standard library that is not compiled.
RUN echo 'evalcell:x:10001:10001::/home/evalcell:/usr/sbin/nologin' >> /etc/passwd \
 && echo 'evalcell:x:10001:' >> /etc/group \
 && mkdir -p /home/evalcell && chmod 1777 /home/evalcell \
 && python3 -m compileall -q -j 0 --invalidation-mode unchecked-hash -x '/(tests?|idlelib|lib2to3|(site|dist)-packages)/' \
      "$(python3 -c 'import sysconfig; print(sysconfig.get_path("stdlib"))')"
COPY --from=build /opt/evalcell /opt/evalcell
ENV HOME=/home/evalcell PATH=/opt/evalcell/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
USER 10001:10001
WORKDIR /work
ENTRYPOINT ["evalcell"]
CMD ["--help"]
