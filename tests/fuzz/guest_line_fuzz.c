/* SPDX-License-Identifier: Apache-2.0 */
/* guest_line_fuzz.c - the line of a helper that brings a drive in, as a hostile guest may make it
 * up.
 *
 * What is said of a failure can be shown, and the disk's name is none that leads out of /dev.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "lib/text.h"
#include "reconciler/drive/guest_line.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(bool condition)
{
    if (!condition)
        abort();
}

static void expect_text(const char *text)
{
    must(text[0] && text_is_utf8(text, strlen(text)) && !strpbrk(text, "\n\r\x1b"));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct drive_guest_line line;
    struct error error = {0};

    if (drive_guest_line_parse((const char *)data, size, &line, &error) < 0) {
        expect_text(error.text);
        return 0;
    }
    must(!strchr(line.device, '/') && line.device[0] != '.');
    must(strlen(line.device) < sizeof(line.device));
    if (line.status != STATUS_OK)
        expect_text(line.error.text);
    return 0;
}
