package house_test

// top is the floor of whole programs, which may use every room. beside is for
// packages that no room needs and that need no room.
const (
	top    = 100
	beside = -1
)

// room is a line of the plan.
type room struct {
	floor int
	// budget bounds the packages from other modules that a room may drag in, as
	// go list -deps counts them; 0 is none, and unbounded is said aloud.
	budget int
	// planned: not built yet. Its floor is fixed all the same.
	planned bool
}

const unbounded = 1 << 30

// plan is the house: a room imports only rooms on lower floors, and rooms on one
// floor do not know each other. Packages below a room's folder belong to the room.
// The budgets are promises to people who embed one room; the kubelet's own numbers
// are 704 for its pleg, 1,212 for its server and 1,570 for all.
var plan = map[string]room{
	"observed": {floor: 0, budget: 0},

	"criclient": {floor: 1, budget: unbounded},
	"podsource": {floor: 1, budget: 170},
	"podspec":   {floor: 1, budget: 170},
	"podnet":    {floor: 1, budget: 170},
	"userns":    {floor: 1, budget: 170},
	"keyring":   {floor: 1, budget: 170},
	"lifecycle": {floor: 1, budget: 170},
	"stats":     {floor: 1, planned: true},
	"oom":       {floor: 1, planned: true},
	"kubeapi":   {floor: 1, planned: true},

	"volume":       {floor: 2, budget: 170},
	"cgroup":       {floor: 2, budget: 170},
	"podenv":       {floor: 2, budget: 170},
	"allocation":   {floor: 2, budget: 170},
	"podstore":     {floor: 2, budget: 170},
	"pleg":         {floor: 2, budget: 170},
	"podruntime":   {floor: 2, budget: 170},
	"imagepull":    {floor: 2, budget: 170},
	"containergc":  {floor: 2, budget: 170},
	"status":       {floor: 2, budget: 170},
	"admission":    {floor: 2, budget: 170},
	"prober":       {floor: 2, planned: true},
	"containerlog": {floor: 2, planned: true},
	"imagegc":      {floor: 2, planned: true},
	"node":         {floor: 2, planned: true},
	"certs":        {floor: 2, planned: true},
	"plugins":      {floor: 2, planned: true},

	"podworkers": {floor: 3, budget: 170},
	"podsync":    {floor: 3, budget: 170},
	"server":     {floor: 3, budget: 260},
	"eviction":   {floor: 3, planned: true},
	"shutdown":   {floor: 3, planned: true},

	"syncloop": {floor: 4, budget: 170},

	"metrics": {floor: 5, budget: 260},

	"floors": {floor: beside, budget: 0},
	"house":  {floor: beside, budget: 0},

	"examples": {floor: top, budget: 360},
}
