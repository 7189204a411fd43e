/* SPDX-License-Identifier: Apache-2.0 */
/* firecracker_fuzz.c - a body through all readers of Firecracker's answers. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "lib/cleanup.h"
#include "lib/text.h"
#include "tests/unit/hypervisor/http_answer.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    cleanup(http_answer_done) struct http_answer answer;
    const struct error *error = &answer.reply.error;

    http_answer_init(&answer, &firecracker_kind, data, size);
    (void)vmm_http_read(&answer.http, firecracker_kind.read_version);
    if (vmm_http_read(&answer.http, firecracker_kind.read_list) == HYPERVISOR_DONE)
        for (size_t i = 0; i < answer.http.drives.count; i++)
            if (!answer.http.drives.entries[i].path[0] ||
                strpbrk(answer.http.drives.entries[i].id, "/ \r\n?#%\""))
                abort(); /* an id goes into a request line */
    if (vmm_http_refusal(&answer.http) == HYPERVISOR_DONE || !error->text[0] ||
        !text_is_utf8(error->text, strlen(error->text)) || strpbrk(error->text, "\n\r\x1b"))
        abort();
    return 0;
}
