/* Texts with a number each, one after the other in one piece of memory, by a table of numbers of their hashes.
 *
 * A hash alone is never believed: the bytes are compared. Of two texts with one hash the last one is found. */
#include <string.h>

#include "number_table.h"

typedef struct {
    const struct Slots *numbers; /* by hash */
    int64_t *edges;              /* by number: where the text begins in memory; one more for where the last one ends */
    uint8_t *memory;
    int64_t count;
} texts;

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

static int same(const texts *in, int64_t number, const uint8_t *text, int64_t size) {
    if (number < 0 || number >= in->count) return 0;
    const int64_t begin = in->edges[number];
    return in->edges[number + 1] - begin == size && !memcmp(in->memory + begin, text, (size_t)size);
}

/* numbers: int64[count], -1 for what is not there; those get the next numbers where there is room: for more keys in the
   table, as many edges, and their bytes in memory. Gives how many texts there are then. */
EXPORTED int64_t jobmeter_texts_find(
    const uint8_t *data, const int64_t *begin, const int64_t *end, int64_t count, const uint64_t *key,
    const struct Slots *slots, int64_t *edges, uint8_t *memory, int64_t known, int adds, int64_t *numbers) {
    texts in = {slots, edges, memory, known};
    int64_t next = 0;
    for (int64_t at = 0; at < count; at++, next++) {
        const uint8_t *text = data + begin[at];
        const int64_t size = end[at] - begin[at];
        /* Senders keep their order: what was learnt after the last one is likely the next. */
        if (!same(&in, next, text, size)) {
            const uint64_t sum = hash(text, size, key);
            next = number_of(slots, sum);
            if (!same(&in, next, text, size)) next = -1;
            if (next < 0 && adds) {
                next = in.count++;
                memcpy(memory + edges[next], text, (size_t)size);
                edges[next + 1] = edges[next] + size;
                fill(slots, slot_of(slots, sum), sum, next);
            }
        }
        numbers[at] = next;
    }
    return in.count;
}
