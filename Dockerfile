# The server in a container: `docker build -t hermes .`, then see docs/how-to/run-as-a-service.md.
# Two stages, so that nothing that builds is in what runs.
FROM python:3.13-slim AS build

WORKDIR /src
COPY pyproject.toml README.md LICENSE ./
COPY hermes ./hermes
RUN python -m venv /opt/hermes \
    && /opt/hermes/bin/pip install --no-cache-dir --disable-pip-version-check . \
    && /opt/hermes/bin/python -m compileall -q /opt/hermes

FROM python:3.13-slim

LABEL org.opencontainers.image.title="Hermes" \
      org.opencontainers.image.description="An agent server on Trio" \
      org.opencontainers.image.licenses="MIT"

# tini reaps what a tool leaves behind after the server itself has been killed; git and ripgrep are what tools ask for.
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install --no-install-recommends -y git ripgrep tini \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --create-home --uid 1000 hermes \
    && install -d -o hermes -g hermes /home/hermes/.hermes /work

COPY --from=build /opt/hermes /opt/hermes

ENV PATH=/opt/hermes/bin:$PATH \
    HERMES_HOME=/home/hermes/.hermes \
    PYTHONUNBUFFERED=1

# By number, so that a cluster that demands non-root can see that it is.
USER 1000
WORKDIR /work
VOLUME ["/home/hermes/.hermes", "/work"]
EXPOSE 8642
STOPSIGNAL SIGTERM

# 0.0.0.0 is inside the container; what is reachable from outside is decided by --publish.
HEALTHCHECK --interval=30s --timeout=5s --start-period=20s CMD ["python", "-c", "import urllib.request as u; u.urlopen('http://127.0.0.1:8642/health', timeout=3)"]
ENTRYPOINT ["tini", "--", "hermes"]
CMD ["serve", "--host", "0.0.0.0", "--port", "8642", "--allow-remote"]
