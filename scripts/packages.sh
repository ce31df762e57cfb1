# Sourced by quickstart and test: makes sure that what the build needs is installed. Safe to source twice.
# Debian 12 and Ubuntu 24.04 package names; installs with apt as root or through sudo, else names what is missing.

flashmask_require() {
  local missing=()
  if ! command -v dpkg-query >/dev/null; then
    echo "Not a Debian system: the build needs the equivalents of $*" >&2  # and names what it does not find
    return 0
  fi
  for package in "$@"; do
    dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q 'ok installed' || missing+=("$package")
  done
  [ ${#missing[@]} -eq 0 ] && return 0
  local sudo=()
  if [ "$(id -u)" -ne 0 ]; then
    if command -v sudo >/dev/null && { sudo -n true 2>/dev/null || [ -t 0 ]; }; then
      sudo=(sudo)
    else
      echo "Missing packages, and no right to install them. Please run: apt-get install ${missing[*]}" >&2
      return 1
    fi
  fi
  echo "Installing: ${missing[*]}"
  "${sudo[@]}" apt-get update -qq || return 1
  "${sudo[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null || return 1
}

FLASHMASK_BUILD_PACKAGES="g++ cmake ninja-build python3 libfmt-dev libcli11-dev nlohmann-json3-dev"
FLASHMASK_TEST_PACKAGES="libgtest-dev librapidcheck-dev libbenchmark-dev"

# The preset with kernels where nvcc is found, else the CPU-only one.
flashmask_preset() {
  if command -v nvcc >/dev/null || [ -x /usr/local/cuda/bin/nvcc ]; then echo cuda; else echo release; fi
}
