/* SPDX-License-Identifier: Apache-2.0 */
/* kata_version.c - Kata's release, as its static tarball and kata-deploy leave it.
 *
 * A distribution's package has no such file; then there is no finding.
 */
#include "doctor/kata_version.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "doctor/host_file.h"
#include "lib/cleanup.h"

static const char version_file[] = "/opt/kata/VERSION";

enum { VERSION_MAX = 9999 };

static bool parse_number(const char **text, unsigned *ret_number)
{
    char *end;
    unsigned long number;

    if (!isdigit((unsigned char)**text))
        return false;
    number = strtoul(*text, &end, 10);
    if (number > VERSION_MAX)
        return false;
    *text = end;
    *ret_number = (unsigned)number;
    return true;
}

bool kata_version_parse(const char *text, struct kata_version *ret_version)
{
    unsigned patch;

    if (!parse_number(&text, &ret_version->major) || *text++ != '.' ||
        !parse_number(&text, &ret_version->minor) || *text++ != '.' || !parse_number(&text, &patch))
        return false;
    return strchr("-+\n\r ", *text) != NULL;
}

bool kata_version_has_direct_volumes(const struct kata_version *version)
{
    return version->major > 2 || (version->major == 2 && version->minor >= 4);
}

void kata_version_examine(int root, struct findings *findings)
{
    cleanup(buffer_done) struct buffer text = BUFFER_INIT(HOST_FILE_BYTES);
    struct kata_version version;
    struct error error = {0};
    int r = host_file_read(root, version_file, &text, &error);

    if (r == HOST_ABSENT)
        return;
    if (r < 0 || !kata_version_parse(buffer_text(&text), &version)) {
        findings_add(findings, FINDING_WARNING, "kata_version", version_file, NULL,
                     "which release of Kata is installed can't be told: %s",
                     r < 0 ? error.text : "the file holds no version");
        return;
    }
    if (kata_version_has_direct_volumes(&version)) {
        findings_add(findings, FINDING_OK, "kata_version", version_file, NULL,
                     "Kata %u.%u knows direct-assigned volumes", version.major, version.minor);
        return;
    }
    findings->lacks_direct_volumes = true;
    findings_add(findings, FINDING_ERROR, "kata_version", version_file,
                 "Install Kata 2.4 or later (3.2 for the Rust runtime)",
                 "Kata %u.%u ignores the metadata of direct-assigned volumes, so no volume "
                 "reaches a guest",
                 version.major, version.minor);
}
