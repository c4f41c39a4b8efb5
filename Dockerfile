# The image of evalcell itself: `docker run --rm -v "$PWD:/work" evalcell run my_evaluator.py --data rows.jsonl`
FROM python:3.12-slim AS build
WORKDIR /src
COPY . .
RUN pip install --no-cache-dir --require-hashes -r requirements/dev.txt \
 && python -m build --wheel --no-isolation --outdir /wheels

FROM python:3.12-slim
COPY --from=build /wheels /wheels
RUN pip install --no-cache-dir /wheels/*.whl && rm -rf /wheels \
 && useradd --create-home --uid 10001 evalcell \
 && install --directory --owner evalcell --mode 0700 /var/cache/evalcell
USER evalcell
# Compiled modules fit one kind of processor, so they are made at the first run: keep this volume to make them once.
ENV EVALCELL_CACHE_DIR=/var/cache/evalcell
VOLUME /var/cache/evalcell
WORKDIR /work
ENTRYPOINT ["evalcell"]
CMD ["--help"]
