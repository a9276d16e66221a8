package budget

import (
	"gateway/store"
)

// Ratios returns the learnt bytes per token of each model.
func Ratios(q store.Queryer) (map[string]float64, error) {
	ratios := make(map[string]float64)
	err := store.Each(q, "budget: read ratios", func(scan store.Scan) error {
		var model string
		var bytes float64
		err := scan(&model, &bytes)
		ratios[model] = bytes
		return err
	}, "SELECT model, bytes FROM usage_ratios")
	return ratios, err
}

// SetRatio saves the bytes per token of a model.
func SetRatio(tx *store.Tx, model string, bytes float64) error {
	_, err := tx.Exec("INSERT INTO usage_ratios (model, bytes) VALUES ($1, $2) "+
		"ON CONFLICT (model) DO UPDATE SET bytes = excluded.bytes", model, bytes)
	return store.Wrap(err, "budget: write ratio of %s", model)
}
