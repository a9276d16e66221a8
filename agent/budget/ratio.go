package budget

import (
	"fmt"

	"gateway/store"
)

// Ratios returns how many bytes a token of each model has, as far as that was learnt.
func Ratios(q store.Queryer) (map[string]float64, error) {
	rows, err := q.Query("SELECT model, bytes FROM usage_ratios")
	if err != nil {
		return nil, fmt.Errorf("budget: read ratios: %w", err)
	}
	defer rows.Close()
	ratios := make(map[string]float64)
	for rows.Next() {
		var model string
		var bytes float64
		if err := rows.Scan(&model, &bytes); err != nil {
			return nil, fmt.Errorf("budget: read ratios: %w", err)
		}
		ratios[model] = bytes
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("budget: read ratios: %w", err)
	}
	return ratios, nil
}

// SetRatio keeps how many bytes a token of a model has.
func SetRatio(tx *store.Tx, model string, bytes float64) error {
	_, err := tx.Exec("INSERT INTO usage_ratios (model, bytes) VALUES ($1, $2) "+
		"ON CONFLICT (model) DO UPDATE SET bytes = excluded.bytes", model, bytes)
	if err != nil {
		return fmt.Errorf("budget: write ratio of %s: %w", model, err)
	}
	return nil
}
