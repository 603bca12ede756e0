/* A table that gives each text a number: open addressing, the texts one after the other in one piece of memory.
 *
 * A hash alone is never believed: the bytes are compared.
 */
#include <string.h>

#include "common.h"

typedef struct {
    uint32_t *slots;   /* number + 1 of a text, 0 for a free slot; a power of two of them */
    uint64_t mask;     /* slots - 1 */
    uint64_t *hashes;  /* by number */
    int64_t *edges;    /* by number: where the text begins in memory; one more for where the last one ends */
    uint8_t *memory;
    int64_t count;
} table;

static uint64_t fold(uint64_t left, uint64_t right) {
    __extension__ typedef unsigned __int128 wide;
    wide product = (wide)left * right;
    return (uint64_t)product ^ (uint64_t)(product >> 64);
}

/* The key is drawn anew in every process, so that nobody can choose texts that meet. */
static uint64_t hash(const uint8_t *text, int64_t size, const uint64_t *key) {
    uint64_t sum = key[0] ^ (uint64_t)size, word;
    for (; size >= 8; size -= 8, text += 8) {
        memcpy(&word, text, 8);
        sum = fold(sum ^ word, key[1]) + key[0];
    }
    word = 0;
    memcpy(&word, text, (size_t)size);
    return fold(sum ^ word, key[1]);
}

static int same(const table *in, int64_t number, const uint8_t *text, int64_t size) {
    const int64_t begin = in->edges[number];
    return in->edges[number + 1] - begin == size && !memcmp(in->memory + begin, text, (size_t)size);
}

/* The slot that holds the text, or the free one where it belongs. At least one slot is free. */
static uint64_t slot_of(const table *in, uint64_t sum, const uint8_t *text, int64_t size) {
    uint64_t at = sum & in->mask;
    for (; in->slots[at]; at = (at + 1) & in->mask) {
        const int64_t number = (int64_t)in->slots[at] - 1;
        if (in->hashes[number] == sum && same(in, number, text, size)) break;
    }
    return at;
}

/* numbers: int64[count], -1 for what is not there. */
EXPORTED void jobmeter_table_find(const uint8_t *data, const int64_t *begin, const int64_t *end, int64_t count,
                                  const uint64_t *key, uint32_t *slots, int64_t slot_count, uint64_t *hashes,
                                  int64_t *edges, uint8_t *memory, int64_t known, int64_t *numbers) {
    const table in = {slots, (uint64_t)slot_count - 1, hashes, edges, memory, known};
    int64_t next = 0;
    for (int64_t at = 0; at < count; at++) {
        const uint8_t *text = data + begin[at];
        const int64_t size = end[at] - begin[at];
        /* Senders keep their order: what was learnt after the last one is likely the next. */
        if (next >= known || !same(&in, next, text, size))
            next = (int64_t)in.slots[slot_of(&in, hash(text, size, key), text, size)] - 1;
        numbers[at] = next;
        next++;
    }
}

/* The same, those that are not there being given the next numbers. There must be room for all of them: more than
 * known + count slots, that many hashes and edges (and one), and their bytes in memory. Gives how many are known then.
 */
EXPORTED int64_t jobmeter_table_add(const uint8_t *data, const int64_t *begin, const int64_t *end, int64_t count,
                                    const uint64_t *key, uint32_t *slots, int64_t slot_count, uint64_t *hashes,
                                    int64_t *edges, uint8_t *memory, int64_t known, int64_t *numbers) {
    table in = {slots, (uint64_t)slot_count - 1, hashes, edges, memory, known};
    for (int64_t at = 0; at < count; at++) {
        const uint8_t *text = data + begin[at];
        const int64_t size = end[at] - begin[at];
        const uint64_t sum = hash(text, size, key), slot = slot_of(&in, sum, text, size);
        if (!slots[slot]) {
            const int64_t edge = edges[in.count];
            memcpy(memory + edge, text, (size_t)size);
            hashes[in.count] = sum;
            edges[in.count + 1] = edge + size;
            slots[slot] = (uint32_t)++in.count;
        }
        numbers[at] = (int64_t)slots[slot] - 1;
    }
    return in.count;
}

/* Puts all texts into slots that are free, after the slots have become more. */
EXPORTED void jobmeter_table_place(uint32_t *slots, int64_t slot_count, const uint64_t *hashes, int64_t known) {
    const uint64_t mask = (uint64_t)slot_count - 1;
    for (int64_t number = 0; number < known; number++) {
        uint64_t at = hashes[number] & mask;
        while (slots[at]) at = (at + 1) & mask;
        slots[at] = (uint32_t)number + 1;
    }
}
