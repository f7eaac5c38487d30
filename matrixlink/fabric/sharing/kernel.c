/* The sharing of matrixlink/fabric in C, for what has to be done thousands of times: rates kept up to date while flows
 * come and go. Progressive filling as in sharing.py, but only of those whom a change reaches. A sharing is max-min fair
 * exactly when every flow is at its ceiling or has a bottleneck: a full link on which nobody has a higher level
 * (Bertsekas and Gallager, Data Networks, 6.5.2). So a set of flows is filled anew while all others stay: those that
 * have their bottleneck on a link which a changed flow crosses, and so on from theirs. Whoever then stands above one of
 * them on its new bottleneck joins the set, and it is filled again; when nobody joins, all have a bottleneck. A flow that
 * leaves at level x, or arrives and will stop at level x, changes nobody below x.
 *
 * Floors are set aside first (guarantee plus share): `room` is a link's capacity less the floors on it. Each link keeps
 * its flows in a doubly linked list of entries (entry f * width + i is the i-th link of flow f, and width is 1 << shift),
 * those that have their bottleneck there in another, and the sum of their shares, which is summed anew now and then
 * against rounding. -1 ends a list. */

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define TIE 1e-12
#define NEAR 1e-9 /* levels this close below the bound are looked at again, against rounding */
#define SAME 1e-11 /* levels this close, relative, are the same */
#define SUMMED_MAX 64 /* times that a sum follows single changes before it is taken anew */

typedef struct { double key; int32_t what; } Entry; /* what: a link, or links + flow for one that meets its ceiling */

typedef double Pair __attribute__((vector_size(16)));

typedef struct { /* all that is asked of a link or a flow at once lies in one line of the cache */
    Pair left_pull; /* what is left for those that rise, and their weight; changed together */
    double room, used;
    int32_t head, neck_head, rising;
    uint8_t in_near, summed;
} Link;

typedef struct {
    double weight, floor, limit, level;
    int32_t length, neck, neck_next, neck_prev; /* neck: its bottleneck, -1 at its ceiling */
    uint8_t in_set, fixed;
} Flow;

typedef struct {
    int32_t flows, links, width, shift;
    Link *link;
    Flow *flow;
    double *share;
    int32_t *path, *next, *prev, *set, *near;
    int32_t set_size, near_size, to_fix;
    Entry *heap;
    int32_t heap_size;
    void *memory;
} Fabric;

void fabric_free(Fabric *f) {
    if (f) free(f->memory);
    free(f);
}

Fabric *fabric_new(int32_t flows, int32_t links, int32_t width, const double *capacity) {
    Fabric *f = calloc(1, sizeof(Fabric));
    if (!f) return NULL;
    while (1 << f->shift < width) f->shift++;
    width = 1 << f->shift;
    size_t n = flows + 1, l = links + 1, e = n * width;
    size_t total = l * sizeof(Link) + n * sizeof(Flow) + (n + l + 1) * sizeof(Entry) + n * 8 + (3 * e + n + l) * 4;
    char *at = f->memory = calloc(total, 1);
    if (!at) { free(f); return NULL; }
    f->flows = flows, f->links = links, f->width = width;
#define TAKE(name, type, count) f->name = (type *)at, at += (count) * sizeof(type)
    TAKE(link, Link, l); TAKE(flow, Flow, n); TAKE(heap, Entry, n + l + 1); TAKE(share, double, n);
    TAKE(path, int32_t, e); TAKE(next, int32_t, e); TAKE(prev, int32_t, e); TAKE(set, int32_t, n); TAKE(near, int32_t, l);
#undef TAKE
    for (int32_t k = 0; k < links; k++) f->link[k].head = f->link[k].neck_head = -1, f->link[k].room = capacity[k];
    return f;
}

static inline double least(double a, double b) { return a < b ? a : b; }
static inline double most(double a, double b) { return a > b ? a : b; }

static void push(Fabric *f, double key, int32_t what) {
    int32_t at = f->heap_size++;
    for (int32_t up; at && f->heap[up = (at - 1) / 2].key > key; at = up) f->heap[at] = f->heap[up];
    f->heap[at] = (Entry){key, what};
}

static void sink(Fabric *f, Entry entry) { /* put an entry in place of the first */
    Entry *heap = f->heap;
    int32_t at = 0, down, size = f->heap_size;
    heap[size].key = INFINITY; /* so that the last one has a brother, and the lower of two is found without a branch */
    while ((down = 2 * at + 1) < size) {
        down += heap[down + 1].key < heap[down].key;
        if (heap[down].key >= entry.key) break;
        heap[at] = heap[down], at = down;
    }
    heap[at] = entry;
}

static void touch(Fabric *f, int32_t link) {
    if (!f->link[link].in_near) f->link[link].in_near = 1, f->near[f->near_size++] = link;
}

static void take_in(Fabric *f, int32_t flow) {
    if (f->flow[flow].in_set) return;
    f->flow[flow].in_set = 1, f->set[f->set_size++] = flow;
    for (int32_t i = 0; i < f->flow[flow].length; i++) touch(f, f->path[(size_t)flow * f->width + i]);
}

/* All on a link that are at or above a level. */
static void take_in_above(Fabric *f, int32_t link, double level) {
    for (int32_t e = f->link[link].head; e >= 0; e = f->next[e])
        if (f->flow[e >> f->shift].level >= level) take_in(f, e >> f->shift);
}

/* All that have their bottleneck on a touched link, at or above a level, and so on from the links that these cross. */
static void take_in_joined(Fabric *f, double level) {
    for (int32_t n = 0; n < f->near_size; n++)
        for (int32_t flow = f->link[f->near[n]].neck_head; flow >= 0; flow = f->flow[flow].neck_next)
            if (f->flow[flow].level >= level) take_in(f, flow);
}

static void set_neck(Fabric *f, int32_t flow, int32_t link) {
    int32_t held = f->flow[flow].neck, before = f->flow[flow].neck_prev, after = f->flow[flow].neck_next;
    if (held == link) return;
    if (held >= 0) {
        if (before >= 0) f->flow[before].neck_next = after;
        else f->link[held].neck_head = after;
        if (after >= 0) f->flow[after].neck_prev = before;
    }
    f->flow[flow].neck = link;
    if (link < 0) return;
    f->flow[flow].neck_prev = -1, f->flow[flow].neck_next = f->link[link].neck_head;
    if (f->link[link].neck_head >= 0) f->flow[f->link[link].neck_head].neck_prev = flow;
    f->link[link].neck_head = flow;
}

static void fix(Fabric *f, int32_t flow, double share, int32_t neck) {
    const int32_t *path = f->path + (size_t)flow * f->width;
    Flow *at = f->flow + flow;
    Pair gone = {share, at->weight};
    for (int32_t i = 0; i < at->length; i++) f->link[path[i]].left_pull -= gone, f->link[path[i]].rising--;
    at->fixed = 1, f->to_fix--;
    f->share[flow] = share, at->level = share / at->weight;
    set_neck(f, flow, neck);
}

static void sum_anew(Fabric *f, int32_t link) {
    double used = 0;
    for (int32_t e = f->link[link].head; e >= 0; e = f->next[e]) used += f->share[e >> f->shift];
    f->link[link].used = used, f->link[link].summed = 0;
}

static double fill_level(const Fabric *f, int32_t link, double level) {
    double now = f->link[link].left_pull[0] / f->link[link].left_pull[1];
    return now > level ? now : level;
}

/* Share anew among the flows of the set; all others stay as they are. */
static void fill(Fabric *f) {
    f->heap_size = 0;
    for (int32_t n = 0; n < f->near_size; n++) {
        int32_t link = f->near[n];
        if (++f->link[link].summed > SUMMED_MAX) sum_anew(f, link);
        f->link[link].left_pull = (Pair){f->link[link].room - f->link[link].used, 0}, f->link[link].rising = 0;
    }
    for (int32_t n = 0; n < f->set_size; n++) {
        int32_t flow = f->set[n];
        const int32_t *path = f->path + (size_t)flow * f->width;
        Pair back = {f->share[flow], f->flow[flow].weight};
        f->flow[flow].fixed = 0;
        for (int32_t i = 0; i < f->flow[flow].length; i++) f->link[path[i]].left_pull += back, f->link[path[i]].rising++;
    }
    for (int32_t n = 0; n < f->near_size; n++)
        if (f->link[f->near[n]].rising) push(f, fill_level(f, f->near[n], 0), f->near[n]);
    for (int32_t n = 0; n < f->set_size; n++) {
        int32_t flow = f->set[n];
        if (f->flow[flow].limit < INFINITY) push(f, f->flow[flow].limit / f->flow[flow].weight, f->links + flow);
    }
    double level = 0;
    f->to_fix = f->set_size;
    while (f->to_fix && f->heap_size) {
        Entry top = f->heap[0];
        if (top.what < f->links && f->link[top.what].rising) {
            double now = fill_level(f, top.what, level);
            if (now > top.key) { sink(f, (Entry){now, top.what}); continue; }
            level = now;
            for (int32_t e = f->link[top.what].head; e >= 0; e = f->next[e]) {
                int32_t flow = e >> f->shift;
                if (f->flow[flow].in_set && !f->flow[flow].fixed) {
                    double share = f->flow[flow].weight * level;
                    if (share < f->flow[flow].limit) fix(f, flow, share, top.what);
                    else fix(f, flow, f->flow[flow].limit, -1);
                }
            }
        } else if (top.what >= f->links && !f->flow[top.what - f->links].fixed) {
            if (top.key > level) level = top.key;
            fix(f, top.what - f->links, f->flow[top.what - f->links].limit, -1);
        }
        if (--f->heap_size) sink(f, f->heap[f->heap_size]);
    }
    for (int32_t n = 0; n < f->near_size; n++) {
        Link *at = f->link + f->near[n];
        at->used = at->room - at->left_pull[0];
    }
}

/* Take in those who stand above a flow of the set on the link that has become its bottleneck. */
static void take_in_above_met(Fabric *f) {
    for (int32_t n = 0, seen = f->set_size; n < seen; n++) {
        int32_t flow = f->set[n], link = f->flow[flow].neck;
        if (link >= 0 && f->link[link].neck_head == flow) take_in_above(f, link, f->flow[flow].level * (1 + SAME) + 1e-300);
    }
}

/* Fill those at or above a level whom the touched links and the flows of the set reach. */
static void settle(Fabric *f, double level) {
    for (int32_t before = -1; f->set_size > before;) {
        take_in_joined(f, level * (1 - NEAR));
        fill(f);
        before = f->set_size;
        take_in_above_met(f);
    }
    for (int32_t n = 0; n < f->set_size; n++) f->flow[f->set[n]].in_set = 0;
    for (int32_t n = 0; n < f->near_size; n++) f->link[f->near[n]].in_near = 0;
    f->near_size = 0;
}

/* The level at which the link fills when those below it stay and the others, with `more` weight, rise together. */
static double meets(const Fabric *f, int32_t link, double more) {
    double level = 0, before = -1;
    while (level > before) {
        double left = f->link[link].room, pull = more;
        for (int32_t e = f->link[link].head; e >= 0; e = f->next[e]) {
            int32_t flow = e >> f->shift;
            if (f->flow[flow].level < level) left -= f->share[flow];
            else pull += f->flow[flow].weight;
        }
        before = level, level = pull > 0 ? (left > 0 ? left / pull : 0) : INFINITY;
    }
    return before > 0 ? before : 0;
}

static void join(Fabric *f, int32_t flow, const int32_t *path, int32_t length, double weight, double floor, double ceiling) {
    f->flow[flow].length = length;
    f->flow[flow].weight = weight, f->flow[flow].floor = floor, f->flow[flow].limit = ceiling - floor;
    f->share[flow] = length ? 0 : f->flow[flow].limit, f->flow[flow].level = INFINITY, f->flow[flow].neck = -1;
    for (int32_t i = 0; i < length; i++) {
        int32_t link = path[i], e = flow * f->width + i;
        f->path[e] = link, f->prev[e] = -1, f->next[e] = f->link[link].head;
        if (f->link[link].head >= 0) f->prev[f->link[link].head] = e;
        f->link[link].head = e, f->link[link].room -= floor;
    }
}

static void leave(Fabric *f, int32_t flow) {
    set_neck(f, flow, -1);
    for (int32_t i = 0; i < f->flow[flow].length; i++) {
        int32_t e = flow * f->width + i, link = f->path[e];
        if (f->prev[e] >= 0) f->next[f->prev[e]] = f->next[e];
        else f->link[link].head = f->next[e];
        if (f->next[e] >= 0) f->prev[f->next[e]] = f->prev[e];
        f->link[link].room += f->flow[flow].floor, f->link[link].used -= f->share[flow];
        touch(f, link);
    }
}

/* All flows at once; the shares are then in `share`. */
void fabric_fill_all(Fabric *f, const int64_t *starts, const int32_t *links, const double *weight, const double *floor,
                     const double *ceiling) {
    f->set_size = 0;
    for (int32_t flow = 0; flow < f->flows; flow++) {
        join(f, flow, links + starts[flow], (int32_t)(starts[flow + 1] - starts[flow]), weight[flow], floor[flow], ceiling[flow]);
        take_in(f, flow);
    }
    settle(f, 0);
}

/* One arrival; returns how many flows were looked at, which are then in `set`. */
int32_t fabric_add(Fabric *f, int32_t flow, const int32_t *path, int32_t length, double weight, double floor, double ceiling) {
    double bound = INFINITY;
    f->set_size = 0;
    for (int32_t i = 0; i < length; i++) f->link[path[i]].room -= floor;
    for (int32_t i = 0; i < length; i++) bound = least(bound, meets(f, path[i], weight));
    for (int32_t i = 0; i < length; i++) f->link[path[i]].room += floor;
    join(f, flow, path, length, weight, floor, ceiling);
    take_in(f, flow);
    for (int32_t i = 0; i < length; i++) take_in_above(f, path[i], bound * (1 - NEAR));
    settle(f, bound);
    return f->set_size;
}

int32_t fabric_remove(Fabric *f, int32_t flow) {
    f->set_size = 0;
    leave(f, flow);
    settle(f, f->flow[flow].level);
    return f->set_size;
}

int32_t fabric_set_capacity(Fabric *f, int32_t link, double change) {
    double bound = INFINITY;
    f->set_size = 0;
    for (int32_t e = f->link[link].head; e >= 0; e = f->next[e]) bound = least(bound, f->flow[e >> f->shift].level);
    f->link[link].room += change;
    if (change < 0) bound = meets(f, link, 0), take_in_above(f, link, bound * (1 - NEAR));
    touch(f, link);
    settle(f, bound);
    return f->set_size;
}

double *fabric_shares(Fabric *f) { return f->share; }
int32_t *fabric_set_of(Fabric *f) { return f->set; }

/* Flows to their ends. `order` lists flows by start; a flow that ends at most half a `window` before or after a moment
 * gives its place up at that moment, its end being where its present rate takes it. Returns the number of moments rates were computed at. */
int64_t fabric_run(Fabric *f, const int64_t *starts, const int32_t *links, const double *weight, const double *floor,
                   const double *ceiling, const double *size, const double *start, const int32_t *order, double window,
                   double *end) {
    int32_t waiting = 0, live = 0;
    int64_t solves = 0;
    double now = 0;
    size_t n = f->flows + 1;
    double *left = malloc(4 * n * sizeof(double)), *since = left + n, *due = left + 2 * n, *rate = left + 3 * n;
    int32_t *running = malloc(2 * n * sizeof(int32_t)), *place = running + n;
    if (!left || !running) { solves = -1; goto done; }
    while (live || waiting < f->flows) {
        double moment = INFINITY;
        for (int32_t n = 0; n < live; n++) moment = least(moment, due[n]);
        moment += window / 2;
        if (waiting < f->flows) moment = least(moment, start[order[waiting]]);
        if (moment == INFINITY) break;
        if (moment < now) moment = now;
        double until = moment + moment * TIE + window / 2, bound = INFINITY;
        int32_t changed = 0;
        f->set_size = 0;
        for (int32_t n = 0; n < live;) {
            int32_t flow = running[n];
            if (due[n] > until) { n++; continue; }
            end[flow] = due[n];
            bound = least(bound, f->flow[flow].level);
            leave(f, flow);
            changed = 1, live--;
            running[n] = running[live], due[n] = due[live], place[running[n]] = n;
        }
        while (waiting < f->flows && start[order[waiting]] <= moment) {
            int32_t flow = order[waiting++], length = (int32_t)(starts[flow + 1] - starts[flow]);
            const int32_t *path = links + starts[flow];
            if (size[flow] <= 0) { end[flow] = start[flow]; continue; }
            join(f, flow, path, length, weight[flow], floor[flow], ceiling[flow]);
            take_in(f, flow), bound = 0;
            for (int32_t i = 0; i < length && floor[flow] > 0; i++) /* a floor leaves those at their ceilings less, too */
                if (f->link[path[i]].used > f->link[path[i]].room) take_in_above(f, path[i], 0);
            left[flow] = size[flow], since[flow] = moment, end[flow] = INFINITY;
            rate[flow] = length ? 0 : ceiling[flow];
            running[live] = flow, place[flow] = live, changed = 1;
            due[live++] = rate[flow] > 0 ? moment + size[flow] / rate[flow] : INFINITY;
        }
        now = moment;
        if (!changed) continue;
        solves += live > 0;
        settle(f, bound);
        for (int32_t n = 0; n < f->set_size; n++) { /* nobody else has a new rate; theirs is one until it changes */
            int32_t flow = f->set[n];
            double now_at = f->flow[flow].floor + f->share[flow];
            if (now_at == rate[flow]) continue;
            left[flow] -= rate[flow] * (now - since[flow]);
            since[flow] = now, rate[flow] = now_at;
            due[place[flow]] = now_at > 0 ? now + most(left[flow], 0) / now_at : INFINITY;
        }
    }
done:
    free(left), free(running);
    return solves;
}
