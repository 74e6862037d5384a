# Prepare this shell, in the project's folder, to work with the wheels that workflow/bundle.sh collected:
#     . workflow/offline.sh && python3 -m experiments preflight
# Wheels that came since are installed as well. PYTHON is the Python to measure with; one that has all that is needed
# does without a bundle. A loader of Vulkan in the bundle is used where the system has none.

prepare_offline() {
    local python=${PYTHON:-python3} bundle=${BUNDLE:-build/bundle} site wheel driver
    local new=()
    if [ ! -d "$bundle" ]; then
        "$python" -c 'import snakemake, pandera, mlxtend' 2>/dev/null && return
        echo "error: $bundle: no such folder: workflow/bundle.sh makes it, where there is a network" >&2
        return 2
    fi
    bundle=$(realpath "$bundle")
    site=$bundle/site
    for wheel in "$bundle"/*.whl; do
        [ ! -e "$wheel" ] || grep -qsxF "${wheel##*/}" "$site/.wheels" || new+=("$wheel")
    done
    if [ ${#new[@]} -gt 0 ]; then
        rm -rf "$site.part"
        "$python" -m pip install --quiet --no-index --no-deps --no-compile --target "$site.part" "${new[@]}" || return
        mkdir -p "$site"
        cp -r "$site.part/." "$site" || return
        printf '%s\n' "${new[@]##*/}" >> "$site/.wheels"
        rm -r "$site.part"
    fi
    export PYTHONPATH="$site${PYTHONPATH:+:$PYTHONPATH}"
    if [ -d "$bundle/lib" ] && ! "$python" -c 'import ctypes; ctypes.CDLL("libvulkan.so.1")' 2>/dev/null; then
        export LD_LIBRARY_PATH="$bundle/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
    fi
    # A loader looks for drivers in /etc and /usr/share alone; containers may have NVIDIA's elsewhere.
    driver=$(find -L /usr/local /opt -maxdepth 6 -path '*/vulkan/icd.d/*nvidia*.json' 2>/dev/null | head -n 1 || true)
    if [ -n "$driver" ] && [ -z "${VK_DRIVER_FILES:-}${VK_ICD_FILENAMES:-}" ]; then
        # The second name is that of loaders before 1.3.207.
        export VK_DRIVER_FILES="$driver" VK_ICD_FILENAMES="$driver"
    fi
}

prepare_offline
