# What run, mixed, fleet and fences stand on, and bench/fleet.py and bench/compare: kazoo from PyPI,
# Curator from Debian or from the directory that CURATOR_JARS names, ZooKeeper likewise (ZK_JARS),
# and commands that end with their script. To be sourced in the project's root; builds under
# ${CARGO_TARGET_DIR:-target}/clients.
# shellcheck shell=bash

KAZOO=2.11.0
target=${CARGO_TARGET_DIR:-$PWD/target}/clients
mkdir -p "$target"

die() { echo "$0: $*" >&2; exit 1; }
refuse() { echo "$0: $*" >&2; exit 2; } # the arguments are wrong

# Waits for a little while until a server listens at HOST:PORT, so that nothing is built for a
# server that does not exist.
await_server() {
    local host=${1%:*} port=${1##*:} connect='exec 3<>"/dev/tcp/$1/$2"'
    host=${host#[} host=${host%]}
    for _ in 1 2 3 4 5 6 7 8 9 10; do
        ! timeout 2 bash -c "$connect" connect "$host" "$port" 2>/dev/null || return 0
        sleep 0.5
    done
    die "no server answers at $1"
}

install() { # Debian packages
    command -v apt-get >/dev/null || die "no apt-get to install $* with"
    local as_root=(env DEBIAN_FRONTEND=noninteractive)
    if [ "$(id -u)" != 0 ]; then
        command -v sudo >/dev/null || die "install $*, or run this as root"
        as_root=(sudo -n "${as_root[@]}")
    fi
    echo "$0: installing $*" >&2
    "${as_root[@]}" apt-get update -q >&2
    "${as_root[@]}" apt-get install -y -q --no-install-recommends "$@" >&2
}

# Runs a command with a time limit. It ends with this script, for whatever reason the script ends.
child=
trap '[ -z "$child" ] || kill "$child" 2>/dev/null || :' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
run() { # seconds name command..
    local code=0
    timeout -k 10 "$1" "${@:3}" </dev/null &
    child=$!
    wait "$child" || code=$?
    child=
    [ "$code" != 2 ] || exit 2 # it has printed the error in its arguments
    [ "$code" != 124 ] || die "$2 has not ended after $1 s"
    [ "$code" = 0 ] || die "$2 ended with $code"
}

# Two of these scripts may begin at once: one installs and builds, and the other waits for it.
begin_building() { exec {building}>"$target/lock" && flock "$building"; }
end_building() { exec {building}>&-; }

# Sets `server` to the command that runs ZooKeeper's classes, all but options and class.
zookeeper() {
    local jars=() missing=() jar
    server=("${JAVA_HOME:+$JAVA_HOME/bin/}java")
    begin_building
    command -v "${server[0]}" >/dev/null || missing+=(default-jre-headless)
    if [ -n "${ZK_JARS:-}" ]; then
        jars=("$ZK_JARS/*")
    else
        for jar in zookeeper zookeeper-jute slf4j-api slf4j-simple netty-all snappy-java \
            metrics-core commons-io commons-cli jackson-core jackson-databind jackson-annotations
        do
            jars+=("/usr/share/java/$jar.jar")
        done
        for jar in "${jars[@]}"; do
            [ -e "$jar" ] || { missing+=(libzookeeper-java); break; }
        done
    fi
    [ ${#missing[@]} = 0 ] || install "${missing[@]}"
    end_building
    server+=(-cp "$(IFS=:; echo "${jars[*]}")")
}

# Sets `python` to a Python that has kazoo.
kazoo() {
    begin_building
    local venv=$target/venv
    local has='import sys; from kazoo.version import __version__ as v; sys.exit(v != sys.argv[1])'
    python=$venv/bin/python
    if ! "$python" -c "$has" "$KAZOO" 2>/dev/null; then
        python3 -c 'import ensurepip, venv' 2>/dev/null || install python3 python3-venv
        python3 -m venv --clear "$venv"
        "$python" -m pip install -q --disable-pip-version-check "kazoo==$KAZOO"
    fi
    end_building
    echo "== kazoo $KAZOO, $("$python" --version)"
}

# Sets `java` to the command that runs our classes beside Curator's, all but the class, and
# `curator_version`. From 5.5 on a writer of Curator's keeps others out while it becomes a reader:
# then its members do that.
curator() {
    local jars=() missing=() jar path classes=$target/classes version=
    begin_building
    if [ -n "${CURATOR_JARS:-}" ]; then
        jars=("$CURATOR_JARS"/*.jar)
        compgen -G "$CURATOR_JARS/curator-recipes-*.jar" >/dev/null ||
            die "CURATOR_JARS: no curator-recipes-VERSION.jar in $CURATOR_JARS"
    else
        for jar in curator-recipes curator-framework curator-client zookeeper zookeeper-jute guava \
            slf4j-api slf4j-nop; do
            jars+=("/usr/share/java/$jar.jar")
        done
    fi
    java=${JAVA_HOME:+$JAVA_HOME/bin/}java
    command -v "${java}c" >/dev/null || missing+=(default-jdk-headless)
    for jar in "${jars[@]}"; do
        [ -e "$jar" ] || { missing+=(libcurator-recipes-java); break; }
    done
    [ ${#missing[@]} = 0 ] || install "${missing[@]}"
    path=$(IFS=:; echo "${jars[*]}")
    if [ "$(cat "$classes/built" 2>/dev/null)" != "$path" ] ||
        [ -n "$(find tests/clients bench/peers -newer "$classes/built" -name '*.java')" ]; then
        rm -rf "$classes"
        mkdir "$classes"
        # The compiler would warn of Curator's annotations, which Debian does not have.
        find tests/clients bench/peers -name '*.java' -print0 |
            xargs -0 "${java}c" --release 17 -nowarn -Xlint:none -cp "$path" -d "$classes" \
                2>"$target/javac.log" ||
            { cat "$target/javac.log" >&2; die "javac fails"; }
        echo "$path" >"$classes/built"
    fi
    end_building
    if [ -n "${CURATOR_JARS:-}" ]; then
        version=$(cd "$CURATOR_JARS" && ls curator-recipes-*.jar)
        version=${version#curator-recipes-} version=${version%.jar}
    else
        version=$(dpkg-query -W -f '${Version}' libcurator-recipes-java 2>/dev/null ||
            echo "0 (of unknown version)")
    fi
    # shellcheck disable=SC2034 # for the caller
    curator_version=$version
    echo "== Curator $version, $("$java" -version 2>&1 | head -n 1)"
    java=("$java" -Xmx256m -XX:+UseSerialGC -Dlog4j2.level=off -cp "$classes:$path")
    if [ "$(printf '%s\n' 5.5 "$version" | sort -V | head -n 1)" = 5.5 ]; then
        java+=(-Dcurator.downgrades=true)
    fi
}
